"""Structures and constants of the Windows API, as in its headers, for 64-bit Windows.

Rules of this file
1. Names are the headers', fields too: Microsoft's documentation applies.
2. No size depends on the importing machine: a DWORD is 32 bits here also on Linux, where ctypes' own c_ulong is not.
3. ``dev/windows-layout`` compiles every size, offset and constant from mingw-w64's headers into
   ``tests/ext/windows/windows_layout.txt``; a test compares. Items missing from those headers are named there.
"""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    Union,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    c_wchar_p,
)

BOOL = c_int32
BYTE = c_uint8
WORD = c_uint16
DWORD = c_uint32
LONG = c_int32
HRESULT = c_int32
LARGE_INTEGER = c_int64
ULONGLONG = c_uint64
SIZE_T = c_uint64
ULONG_PTR = c_uint64
HANDLE = c_void_p
PSID = c_void_p
PVOID = c_void_p
LPWSTR = c_wchar_p

# winnt.h, job objects
JOB_OBJECT_LIMIT_ACTIVE_PROCESS = 0x8
JOB_OBJECT_LIMIT_JOB_MEMORY = 0x200
JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION = 0x400
JOB_OBJECT_LIMIT_BREAKAWAY_OK = 0x800
JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE = 0x2000
JOB_OBJECT_UILIMIT_READCLIPBOARD = 0x2
JOB_OBJECT_UILIMIT_SYSTEMPARAMETERS = 0x8
JOB_OBJECT_UILIMIT_DISPLAYSETTINGS = 0x10
JOB_OBJECT_UILIMIT_EXITWINDOWS = 0x80
JOB_OBJECT_CPU_RATE_CONTROL_ENABLE = 0x1
JOB_OBJECT_CPU_RATE_CONTROL_HARD_CAP = 0x4
JOB_OBJECT_MSG_ACTIVE_PROCESS_LIMIT = 3
JOB_OBJECT_MSG_ACTIVE_PROCESS_ZERO = 4
JOB_OBJECT_MSG_NEW_PROCESS = 6
JOB_OBJECT_MSG_PROCESS_MEMORY_LIMIT = 9
JOB_OBJECT_MSG_JOB_MEMORY_LIMIT = 10

# winnt.h, tokens and access
TOKEN_ASSIGN_PRIMARY = 0x1
TOKEN_DUPLICATE = 0x2
TOKEN_QUERY = 0x8
TOKEN_ADJUST_DEFAULT = 0x80
DISABLE_MAX_PRIVILEGE = 0x1
LUA_TOKEN = 0x4
WRITE_RESTRICTED = 0x8
SE_GROUP_INTEGRITY = 0x20
SE_GROUP_ENABLED = 0x4
SE_GROUP_LOGON_ID = 0xC0000000
SECURITY_MANDATORY_LOW_RID = 0x1000
FILE_GENERIC_READ = 0x120089
FILE_GENERIC_WRITE = 0x120116
FILE_ALL_ACCESS = 0x1F01FF
DELETE = 0x10000
READ_CONTROL = 0x20000
WRITE_DAC = 0x40000
WRITE_OWNER = 0x80000
GENERIC_ALL = 0x10000000
DACL_SECURITY_INFORMATION = 0x4
LABEL_SECURITY_INFORMATION = 0x10
PROTECTED_DACL_SECURITY_INFORMATION = 0x80000000
UNPROTECTED_DACL_SECURITY_INFORMATION = 0x20000000
NO_INHERITANCE = 0x0
SUB_CONTAINERS_AND_OBJECTS_INHERIT = 0x3

# winnt.h, fileapi.h: opening a file without following links
FILE_SHARE_READ = 0x1
FILE_SHARE_WRITE = 0x2
FILE_SHARE_DELETE = 0x4
OPEN_EXISTING = 3
FILE_FLAG_OPEN_REPARSE_POINT = 0x200000
FILE_FLAG_BACKUP_SEMANTICS = 0x2000000
FILE_ATTRIBUTE_REPARSE_POINT = 0x400

# winbase.h, processthreadsapi.h: process creation
CREATE_SUSPENDED = 0x4
CREATE_NEW_PROCESS_GROUP = 0x200
CREATE_UNICODE_ENVIRONMENT = 0x400
CREATE_BREAKAWAY_FROM_JOB = 0x1000000
CREATE_NO_WINDOW = 0x8000000
EXTENDED_STARTUPINFO_PRESENT = 0x80000
STARTF_USESTDHANDLES = 0x100
HANDLE_FLAG_INHERIT = 0x1
PROC_THREAD_ATTRIBUTE_HANDLE_LIST = 0x20002
PROC_THREAD_ATTRIBUTE_MITIGATION_POLICY = 0x20007
PROC_THREAD_ATTRIBUTE_SECURITY_CAPABILITIES = 0x20009
PROC_THREAD_ATTRIBUTE_JOB_LIST = 0x2000D
PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE = 0x20016
PROCESS_CREATION_MITIGATION_POLICY_EXTENSION_POINT_DISABLE_ALWAYS_ON = 1 << 32
PROCESS_CREATION_MITIGATION_POLICY_IMAGE_LOAD_NO_REMOTE_ALWAYS_ON = 1 << 52
PROCESS_CREATION_MITIGATION_POLICY_IMAGE_LOAD_PREFER_SYSTEM32_ALWAYS_ON = 1 << 60
INFINITE = 0xFFFFFFFF
WAIT_OBJECT_0 = 0x0
WAIT_TIMEOUT = 0x102
LOCKFILE_FAIL_IMMEDIATELY = 0x1
LOCKFILE_EXCLUSIVE_LOCK = 0x2
PROCESS_QUERY_LIMITED_INFORMATION = 0x1000
PROCESS_SUSPEND_RESUME = 0x800
THREAD_TERMINATE = 0x1
CTRL_C_EVENT = 0
CTRL_BREAK_EVENT = 1
ENABLE_PROCESSED_INPUT = 0x1
ENABLE_LINE_INPUT = 0x2
ENABLE_ECHO_INPUT = 0x4
ENABLE_VIRTUAL_TERMINAL_INPUT = 0x200
ENABLE_PROCESSED_OUTPUT = 0x1
ENABLE_VIRTUAL_TERMINAL_PROCESSING = 0x4
OWNER_SECURITY_INFORMATION = 0x1
ACCESS_ALLOWED_ACE_TYPE = 0
ACCESS_DENIED_ACE_TYPE = 1
SYNCHRONIZE = 0x100000
STILL_ACTIVE = 259

# winbase.h: named pipes, and input and output that is waited for
PIPE_ACCESS_DUPLEX = 0x3
FILE_FLAG_FIRST_PIPE_INSTANCE = 0x80000
FILE_FLAG_OVERLAPPED = 0x40000000
PIPE_TYPE_BYTE = 0x0
PIPE_REJECT_REMOTE_CLIENTS = 0x8
GENERIC_WRITE = 0x40000000
FILE_CREATE_PIPE_INSTANCE = 0x4

# winerror.h
ERROR_FILE_NOT_FOUND = 2
ERROR_ACCESS_DENIED = 5
ERROR_INVALID_HANDLE = 6
ERROR_LOCK_VIOLATION = 33
ERROR_INVALID_PARAMETER = 87
ERROR_BROKEN_PIPE = 109
ERROR_NOT_LOCKED = 158
ERROR_NO_DATA = 232
ERROR_PIPE_NOT_CONNECTED = 233
ERROR_MORE_DATA = 234
ERROR_NOT_FOUND = 1168
ERROR_PIPE_CONNECTED = 535
ERROR_OPERATION_ABORTED = 995
ERROR_IO_PENDING = 997
ERROR_CALL_NOT_IMPLEMENTED = 120
ERROR_INSUFFICIENT_BUFFER = 122
ERROR_PROC_NOT_FOUND = 127
ERROR_ALREADY_EXISTS = 183
ERROR_CANT_RESOLVE_FILENAME = 1921

ENUM = {
    # winnt.h: JOBOBJECTINFOCLASS, TOKEN_INFORMATION_CLASS
    "JobObjectBasicAccountingInformation": 1,
    "JobObjectBasicProcessIdList": 3,
    "JobObjectBasicUIRestrictions": 4,
    "JobObjectAssociateCompletionPortInformation": 7,
    "JobObjectExtendedLimitInformation": 9,
    "JobObjectCpuRateControlInformation": 15,
    "TokenUser": 1,
    "TokenGroups": 2,
    "TokenPrivileges": 3,
    "TokenDefaultDacl": 6,
    "TokenRestrictedSids": 11,
    "TokenElevation": 20,
    "TokenIntegrityLevel": 25,
    "TokenIsAppContainer": 29,
    "TokenCapabilities": 30,
    "TokenAppContainerSid": 31,
    # minwinbase.h: FILE_INFO_BY_HANDLE_CLASS
    "FileAttributeTagInfo": 9,
    # accctrl.h: SE_OBJECT_TYPE, ACCESS_MODE, TRUSTEE_FORM, TRUSTEE_TYPE
    "SE_FILE_OBJECT": 1,
    "GRANT_ACCESS": 1,
    "DENY_ACCESS": 3,
    "REVOKE_ACCESS": 4,
    "TRUSTEE_IS_SID": 0,
    "TRUSTEE_IS_UNKNOWN": 0,
}


class FILE_ATTRIBUTE_TAG_INFO(Structure):  # noqa: N801 - the header's name
    _fields_ = (("FileAttributes", DWORD), ("ReparseTag", DWORD))


class LUID(Structure):
    _fields_ = (("LowPart", DWORD), ("HighPart", LONG))


class LUID_AND_ATTRIBUTES(Structure):  # noqa: N801 - the header's name
    _fields_ = (("Luid", LUID), ("Attributes", DWORD))


class SID_AND_ATTRIBUTES(Structure):  # noqa: N801
    _fields_ = (("Sid", PSID), ("Attributes", DWORD))


class TOKEN_MANDATORY_LABEL(Structure):  # noqa: N801
    _fields_ = (("Label", SID_AND_ATTRIBUTES),)


class TOKEN_DEFAULT_DACL(Structure):  # noqa: N801
    _fields_ = (("DefaultDacl", PVOID),)


class SECURITY_CAPABILITIES(Structure):  # noqa: N801
    _fields_ = (
        ("AppContainerSid", PSID),
        ("Capabilities", POINTER(SID_AND_ATTRIBUTES)),
        ("CapabilityCount", DWORD),
        ("Reserved", DWORD),
    )


class SECURITY_ATTRIBUTES(Structure):  # noqa: N801
    _fields_ = (("nLength", DWORD), ("lpSecurityDescriptor", PVOID), ("bInheritHandle", BOOL))


class TRUSTEE_W(Structure):  # noqa: N801
    _fields_ = (
        ("pMultipleTrustee", PVOID),
        ("MultipleTrusteeOperation", c_int32),
        ("TrusteeForm", c_int32),
        ("TrusteeType", c_int32),
        ("ptstrName", PVOID),
    )


class EXPLICIT_ACCESS_W(Structure):  # noqa: N801
    _fields_ = (
        ("grfAccessPermissions", DWORD),
        ("grfAccessMode", c_int32),
        ("grfInheritance", DWORD),
        ("Trustee", TRUSTEE_W),
    )


class STARTUPINFOW(Structure):
    _fields_ = (
        ("cb", DWORD),
        ("lpReserved", LPWSTR),
        ("lpDesktop", LPWSTR),
        ("lpTitle", LPWSTR),
        ("dwX", DWORD),
        ("dwY", DWORD),
        ("dwXSize", DWORD),
        ("dwYSize", DWORD),
        ("dwXCountChars", DWORD),
        ("dwYCountChars", DWORD),
        ("dwFillAttribute", DWORD),
        ("dwFlags", DWORD),
        ("wShowWindow", WORD),
        ("cbReserved2", WORD),
        ("lpReserved2", PVOID),
        ("hStdInput", HANDLE),
        ("hStdOutput", HANDLE),
        ("hStdError", HANDLE),
    )


class STARTUPINFOEXW(Structure):
    _fields_ = (("StartupInfo", STARTUPINFOW), ("lpAttributeList", PVOID))


class PROCESS_INFORMATION(Structure):  # noqa: N801
    _fields_ = (("hProcess", HANDLE), ("hThread", HANDLE), ("dwProcessId", DWORD), ("dwThreadId", DWORD))


class COORD(Structure):
    _fields_ = (("X", c_uint16), ("Y", c_uint16))


class IO_COUNTERS(Structure):  # noqa: N801
    _fields_ = (
        ("ReadOperationCount", ULONGLONG),
        ("WriteOperationCount", ULONGLONG),
        ("OtherOperationCount", ULONGLONG),
        ("ReadTransferCount", ULONGLONG),
        ("WriteTransferCount", ULONGLONG),
        ("OtherTransferCount", ULONGLONG),
    )


class JOBOBJECT_BASIC_LIMIT_INFORMATION(Structure):  # noqa: N801
    _fields_ = (
        ("PerProcessUserTimeLimit", LARGE_INTEGER),
        ("PerJobUserTimeLimit", LARGE_INTEGER),
        ("LimitFlags", DWORD),
        ("MinimumWorkingSetSize", SIZE_T),
        ("MaximumWorkingSetSize", SIZE_T),
        ("ActiveProcessLimit", DWORD),
        ("Affinity", ULONG_PTR),
        ("PriorityClass", DWORD),
        ("SchedulingClass", DWORD),
    )


class JOBOBJECT_EXTENDED_LIMIT_INFORMATION(Structure):  # noqa: N801
    _fields_ = (
        ("BasicLimitInformation", JOBOBJECT_BASIC_LIMIT_INFORMATION),
        ("IoInfo", IO_COUNTERS),
        ("ProcessMemoryLimit", SIZE_T),
        ("JobMemoryLimit", SIZE_T),
        ("PeakProcessMemoryUsed", SIZE_T),
        ("PeakJobMemoryUsed", SIZE_T),
    )


class JOBOBJECT_BASIC_UI_RESTRICTIONS(Structure):  # noqa: N801
    _fields_ = (("UIRestrictionsClass", DWORD),)


class _Rate(Union):
    _fields_ = (("CpuRate", DWORD), ("Weight", DWORD))


class JOBOBJECT_CPU_RATE_CONTROL_INFORMATION(Structure):  # noqa: N801
    _anonymous_ = ("rate",)
    _fields_ = (("ControlFlags", DWORD), ("rate", _Rate))


class JOBOBJECT_ASSOCIATE_COMPLETION_PORT(Structure):  # noqa: N801
    _fields_ = (("CompletionKey", PVOID), ("CompletionPort", HANDLE))


class JOBOBJECT_BASIC_ACCOUNTING_INFORMATION(Structure):  # noqa: N801
    _fields_ = (
        ("TotalUserTime", LARGE_INTEGER),
        ("TotalKernelTime", LARGE_INTEGER),
        ("ThisPeriodTotalUserTime", LARGE_INTEGER),
        ("ThisPeriodTotalKernelTime", LARGE_INTEGER),
        ("TotalPageFaultCount", DWORD),
        ("TotalProcesses", DWORD),
        ("ActiveProcesses", DWORD),
        ("TotalTerminatedProcesses", DWORD),
    )


class FILETIME(Structure):
    _fields_ = (("dwLowDateTime", DWORD), ("dwHighDateTime", DWORD))


class OVERLAPPED(Structure):
    _fields_ = (
        ("Internal", ULONG_PTR),
        ("InternalHigh", ULONG_PTR),
        ("Offset", DWORD),
        ("OffsetHigh", DWORD),
        ("hEvent", HANDLE),
    )


class ACL(Structure):
    _fields_ = (("AclRevision", BYTE), ("Sbz1", BYTE), ("AclSize", WORD), ("AceCount", WORD), ("Sbz2", WORD))


class ACE_HEADER(Structure):  # noqa: N801
    _fields_ = (("AceType", BYTE), ("AceFlags", BYTE), ("AceSize", WORD))


class ACCESS_ALLOWED_ACE(Structure):  # noqa: N801
    """SidStart is the first part of the SID itself."""

    _fields_ = (("Header", ACE_HEADER), ("Mask", DWORD), ("SidStart", DWORD))


class CONSOLE_SCREEN_BUFFER_INFO(Structure):  # noqa: N801
    _fields_ = (
        ("dwSize", COORD),
        ("dwCursorPosition", COORD),
        ("wAttributes", WORD),
        ("srWindow", c_uint16 * 4),
        ("dwMaximumWindowSize", COORD),
    )


STRUCTURES = tuple(
    value for value in list(globals().values()) if isinstance(value, type(Structure)) and value.__name__.isupper()
)
"""All structures above whose name is in a header."""
