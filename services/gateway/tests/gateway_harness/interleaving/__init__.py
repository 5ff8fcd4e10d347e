"""Two owners of one run, in every order."""
