"""`turncredit view`: experiments and imported tables as pages that are made when they are asked for."""
