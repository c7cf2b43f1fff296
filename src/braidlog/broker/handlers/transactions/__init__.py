"""The APIs of transactional producers; each submits one operation to the transaction coordinator."""
