"""The user's own training code: started once for each replica, held, measured and ended from outside."""
