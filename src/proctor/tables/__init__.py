"""A run as flat tables: for spreadsheets, data frames and other tools. One home for their columns."""
