"""REST API of the sample company: live rows of its database, tickets, sign-in, OpenAPI 3.1."""

from bos_demo.company_api.service import CompanyApi, serve_company_api

__all__ = ["CompanyApi", "serve_company_api"]
