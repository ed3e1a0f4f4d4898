"""People who sign in with OpenID Connect: the provider's tokens are verified here, and made nowhere."""
