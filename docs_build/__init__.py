"""The documentation site: pages made from the code, links into the repository, the gallery of reports."""
