# Made by generate.py of doppel/_async/__init__.py: change that.
"""The implementation, with asyncio; `generate.py` makes `_sync` of it."""
