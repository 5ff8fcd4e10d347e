"""VerifiedQueryService: users mark the queries of their runs as right."""
