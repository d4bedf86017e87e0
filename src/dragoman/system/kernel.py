"""Windows' kernel32, with the types of the functions that this room calls. Empty elsewhere."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    ntdll = ctypes.WinDLL("ntdll")

    def _declare(function: ctypes._NamedFuncPointer, result: type, *arguments: type) -> None:
        function.restype, function.argtypes = result, arguments

    _declare(kernel32.CloseHandle, wintypes.BOOL, wintypes.HANDLE)
    _declare(kernel32.OpenThread, wintypes.HANDLE, wintypes.DWORD, wintypes.BOOL, wintypes.DWORD)
    _declare(kernel32.CancelSynchronousIo, wintypes.BOOL, wintypes.HANDLE)
    _declare(kernel32.OpenProcess, wintypes.HANDLE, wintypes.DWORD, wintypes.BOOL, wintypes.DWORD)
    _declare(kernel32.WaitForSingleObject, wintypes.DWORD, wintypes.HANDLE, wintypes.DWORD)
    _declare(kernel32.CreateJobObjectW, wintypes.HANDLE, wintypes.LPVOID, wintypes.LPCWSTR)
    _declare(
        kernel32.SetInformationJobObject, wintypes.BOOL, wintypes.HANDLE, wintypes.INT, wintypes.LPVOID, wintypes.DWORD
    )
    _declare(
        kernel32.QueryInformationJobObject,
        wintypes.BOOL,
        wintypes.HANDLE,
        wintypes.INT,
        wintypes.LPVOID,
        wintypes.DWORD,
        wintypes.LPVOID,
    )
    _declare(kernel32.AssignProcessToJobObject, wintypes.BOOL, wintypes.HANDLE, wintypes.HANDLE)
    _declare(kernel32.TerminateJobObject, wintypes.BOOL, wintypes.HANDLE, wintypes.UINT)
    _declare(kernel32.GenerateConsoleCtrlEvent, wintypes.BOOL, wintypes.DWORD, wintypes.DWORD)
    _declare(kernel32.GetCurrentProcess, wintypes.HANDLE)
    _declare(kernel32.GetProcessTimes, wintypes.BOOL, wintypes.HANDLE, *[ctypes.POINTER(ctypes.c_uint64)] * 4)
    _declare(kernel32.GetConsoleCP, wintypes.UINT)
    _declare(kernel32.LockFile, wintypes.BOOL, wintypes.HANDLE, *[wintypes.DWORD] * 4)
    _declare(ntdll.NtResumeProcess, wintypes.LONG, wintypes.HANDLE)
    _declare(
        ntdll.NtQueryInformationProcess,
        wintypes.LONG,
        wintypes.HANDLE,
        wintypes.INT,
        wintypes.LPVOID,
        wintypes.ULONG,
        wintypes.LPVOID,
    )

    def close_handle(handle: int) -> None:
        """Close a handle."""
        kernel32.CloseHandle(handle)

    def last_error() -> OSError:
        """Return the error of the last call of kernel32."""
        return ctypes.WinError(ctypes.get_last_error())
