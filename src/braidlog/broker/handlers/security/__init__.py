"""The APIs of logins and users; what a mechanism says and checks is in `security`."""
