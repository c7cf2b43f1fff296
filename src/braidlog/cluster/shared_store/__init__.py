"""The embedded store as processes of one machine share it over a Unix socket; what is in it is not known here."""
