"""The spool: the folder where jobs report and find requests to them."""
