"""Who somebody is, and what he may do: names, passwords, access control. Nothing here sends or reads anything."""
