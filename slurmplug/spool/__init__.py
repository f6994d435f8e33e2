"""The folder that jobs report in and are asked through."""
