"""What is served on loopback (``mudroom serve``): agents' cards, and the frame that everything else there stands in.

Starlette and uvicorn come with the extra ``web``; nothing here is imported but by the verb.
"""
