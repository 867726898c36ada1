"""Learning with unknown scopes: evidence about candidate scopes, and learners that use it."""
