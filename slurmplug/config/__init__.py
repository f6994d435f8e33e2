"""The site's configuration, and the policies that it names."""
