"""Request and answer types for the API (``/api/v1``). msgspec validates requests by them, and makes the OpenAPI
document from them.

1. Times are milliseconds since 1970, sizes bytes, unless a field says otherwise.
2. A project path has two forms: ``id``, its bytes in base64url without padding, which the API takes; and ``path``, for
   people (``core/tree/path.py:show``): one line, printable, without characters that change the reading order. In a
   fork's review a path in another project (``RootShape``) is absolute.
3. File contents are sent as text; bytes that are not text are marked. No field is HTML.
4. Spans are pairs of offsets in UTF-16 code units, as a page counts them.
"""

from __future__ import annotations

from mudroom.ext.web.shape.attempt import *
from mudroom.ext.web.shape.change import *
from mudroom.ext.web.shape.conflict import *
from mudroom.ext.web.shape.course import *
from mudroom.ext.web.shape.device import *
from mudroom.ext.web.shape.place import *
from mudroom.ext.web.shape.remark import *
