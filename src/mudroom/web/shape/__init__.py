"""What the API takes and gives (``/api/v1``), as types: msgspec checks requests by them, and makes the document of it.

1. Times are milliseconds since 1970, sizes bytes, unless a field says otherwise.
2. A path of a project is two things: ``id``, its bytes in base64url without padding, which is what the API takes; and
   ``path``, for people (``core/tree/path.py:show``): one line, printable, nothing that turns the reading order around.
3. Text of files is sent as text with the places marked where its bytes are none; nothing here is HTML.
4. Spans are pairs of offsets in UTF-16 code units, as a page counts them.
"""

from __future__ import annotations

from mudroom.web.shape.change import *
from mudroom.web.shape.conflict import *
from mudroom.web.shape.course import *
from mudroom.web.shape.place import *
