"""Development tools: what builds, generates and checks braidlog; never imported by the package itself."""
