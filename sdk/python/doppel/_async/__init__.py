"""The implementation, with asyncio; `generate.py` makes `_sync` of it."""
