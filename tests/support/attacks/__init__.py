"""Valid requests that hurt other clients, by the memory or the time that they take, and what measures the harm."""
