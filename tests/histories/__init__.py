"""Histories of whole migrations, as a server kept them; each version of the workflows has to replay them."""
