"""What programs of many languages write to stderr when they fail to start, and the cause in it.

Each is a real ending, shortened where a trace is long: the text, and what must be told of it.
"""

from __future__ import annotations

ENDINGS: list[tuple[str, str, str]] = [
    # whose, what it wrote, the cause
    (
        "python, a missing module",
        (
            "Traceback (most recent call last):\n"
            '  File "/srv/server.py", line 1, in <module>\n'
            "    import httpx\n"
            "ModuleNotFoundError: No module named 'httpx'\n"
        ),
        "ModuleNotFoundError: No module named 'httpx'",
    ),
    (
        "python, an error while an error is handled",
        (
            "Traceback (most recent call last):\n"
            '  File "s.py", line 2, in <module>\n'
            "    os.environ['TOKEN']\n"
            "KeyError: 'TOKEN'\n\n"
            "During handling of the above exception, another exception occurred:\n\n"
            "Traceback (most recent call last):\n"
            '  File "s.py", line 4, in <module>\n'
            "    raise RuntimeError('set TOKEN') from None\n"
            "RuntimeError: set TOKEN\n"
        ),
        "RuntimeError: set TOKEN",
    ),
    (
        "python, an error without a text, and a log after it",
        (
            "Traceback (most recent call last):\n"
            '  File "s.py", line 2, in <module>\n'
            "    assert ready\n"
            "AssertionError\n"
            "sys:1: ResourceWarning: unclosed file\n"
            "done\n"
        ),
        "AssertionError",
    ),
    (
        "python, a syntax error",
        '  File "s.py", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax\n',
        "SyntaxError: invalid syntax",
    ),
    (
        "python, an exception group",
        (
            "  + Exception Group Traceback (most recent call last):\n"
            '  |   File "s.py", line 9, in <module>\n'
            "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
            "  +-+---------------- 1 ----------------\n"
            "    | Traceback (most recent call last):\n"
            "    | ConnectionRefusedError: [Errno 111] Connection refused\n"
            "    +------------------------------------\n"
        ),
        "ConnectionRefusedError: [Errno 111] Connection refused",
    ),
    (
        "pydantic, settings",
        (
            "Traceback (most recent call last):\n"
            '  File "s.py", line 7, in <module>\n'
            "    settings = Settings()\n"
            "pydantic_core._pydantic_core.ValidationError: 2 validation errors for Settings\n"
            "GITHUB_TOKEN\n"
            "  Field required [type=missing, input_value={}, input_type=dict]\n"
            "    For further information visit https://errors.pydantic.dev/2.11/v/missing\n"
            "GITHUB_HOST\n"
            "  Field required [type=missing, input_value={}, input_type=dict]\n"
            "    For further information visit https://errors.pydantic.dev/2.11/v/missing\n"
        ),
        "ValidationError: 2 validation errors for Settings GITHUB_TOKEN Field required",
    ),
    (
        "python, argparse",
        "usage: server [-h] --root ROOT\nserver: error: the following arguments are required: --root\n",
        "server: error: the following arguments are required: --root",
    ),
    (
        "python, click",
        "Usage: server [OPTIONS]\nTry 'server --help' for help.\n\nError: Missing option '--token'.\n",
        "Error: Missing option '--token'.",
    ),
    (
        "python, no such file",
        "python: can't open file '/srv/sever.py': [Errno 2] No such file or directory\n",
        "can't open file '/srv/sever.py'",
    ),
    ("python, no such module", "/usr/bin/python3: No module named weather\n", "No module named weather"),
    (
        "go, a panic",
        (
            "2026/11/26 10:00:00 starting\n"
            "panic: runtime error: invalid memory address or nil pointer dereference\n"
            "[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4a1b2c]\n\n"
            "goroutine 1 [running]:\n"
            "main.main()\n"
            "\t/src/main.go:12 +0x1d\n"
            "exit status 2\n"
        ),
        "panic: runtime error: invalid memory address or nil pointer dereference",
    ),
    ("go, a log that ends it", "2026/11/26 10:00:00 GITHUB_TOKEN is not set\n", "GITHUB_TOKEN is not set"),
    (
        "go, all goroutines asleep",
        "fatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1 [chan receive]:\nmain.main()\n\t/src/m.go:5\n",
        "fatal error: all goroutines are asleep - deadlock!",
    ),
    (
        "go, cobra",
        'Error: required flag(s) "root" not set\nUsage:\n  server stdio [flags]\n\nFlags:\n  -h, --help   help\n',
        'Error: required flag(s) "root" not set',
    ),
    (
        "node, a missing module",
        (
            "node:internal/modules/cjs/loader:1228\n"
            "  throw err;\n"
            "  ^\n\n"
            "Error: Cannot find module '/srv/dist/index.js'\n"
            "    at Module._resolveFilename (node:internal/modules/cjs/loader:1225:15)\n"
            "    at node:internal/main/run_main_module:36:49 {\n"
            "  code: 'MODULE_NOT_FOUND',\n"
            "  requireStack: []\n"
            "}\n\n"
            "Node.js v22.11.0\n"
        ),
        "Error: Cannot find module '/srv/dist/index.js'",
    ),
    (
        "node, a missing package of a module",
        (
            "node:internal/modules/package_json_reader:256\n"
            "  throw new ERR_MODULE_NOT_FOUND(packageName, fileURLToPath(base), null);\n"
            "        ^\n\n"
            "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /srv/index.js\n"
            "    at packageResolve (node:internal/modules/esm/resolve:839:9) {\n"
            "  code: 'ERR_MODULE_NOT_FOUND'\n"
            "}\n\n"
            "Node.js v22.11.0\n"
        ),
        "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod'",
    ),
    (
        "node, a type error",
        (
            "/srv/index.js:3\n"
            "const root = process.env.ROOT.trim();\n"
            "                              ^\n\n"
            "TypeError: Cannot read properties of undefined (reading 'trim')\n"
            "    at Object.<anonymous> (/srv/index.js:3:31)\n\n"
            "Node.js v20.18.0\n"
        ),
        "TypeError: Cannot read properties of undefined (reading 'trim')",
    ),
    (
        "node, an address in use",
        (
            "node:events:497\n      throw er; // Unhandled 'error' event\n      ^\n\n"
            "Error: listen EADDRINUSE: address already in use :::3000\n"
            "    at Server.setupListenHandle [as _listen2] (node:net:1937:16)\n"
            "Emitted 'error' event on Server instance at:\n"
            "    at emitErrorNT (node:net:1916:8) {\n  code: 'EADDRINUSE',\n}\n\nNode.js v22.11.0\n"
        ),
        "Error: listen EADDRINUSE: address already in use :::3000",
    ),
    (
        "node, a program's own words",
        "Usage: mcp-server-filesystem <allowed-directory> [additional-directories...]\n",
        "Usage: mcp-server-filesystem <allowed-directory>",
    ),
    (
        "npx, no such package",
        (
            "npm error code E404\n"
            "npm error 404 Not Found - GET https://registry.npmjs.org/nosuch - Not found\n"
            "npm error 404\n"
            "npm error 404  'nosuch@*' is not in this registry.\n"
            "npm error A complete log of this run can be found in: /home/a/.npm/_logs/x.log\n"
        ),
        "npm error 404 Not Found - GET https://registry.npmjs.org/nosuch",
    ),
    (
        "npm, of an older version",
        "npm ERR! code ENOENT\nnpm ERR! syscall open\nnpm ERR! enoent Could not read package.json\n",
        "npm ERR! enoent Could not read package.json",
    ),
    (
        "deno",
        "error: Uncaught (in promise) Error: no TOKEN\n    throw new Error('no TOKEN');\n          ^\n    at file:///s.ts:1:7\n",
        "error: Uncaught (in promise) Error: no TOKEN",
    ),
    (
        "bun",
        'error: Cannot find package "zod" from "/srv/index.ts"\n\nBun v1.1.34 (Linux x64)\n',
        'error: Cannot find package "zod" from "/srv/index.ts"',
    ),
    (
        "uvx, no such package",
        (
            "  × No solution found when resolving tool dependencies:\n"
            "  ╰─▶ Because nosuch was not found in the package registry and you require nosuch,\n"
            "      we can conclude that your requirements are unsatisfiable.\n"
        ),
        "Because nosuch was not found in the package registry",
    ),
    (
        "uv, no such command",
        "error: Failed to spawn: `weather`\n  Caused by: No such file or directory (os error 2)\n",
        "error: Failed to spawn: `weather`",
    ),
    (
        "pip",
        (
            "ERROR: Could not find a version that satisfies the requirement nosuch (from versions: none)\n"
            "ERROR: No matching distribution found for nosuch\n"
        ),
        "ERROR: Could not find a version that satisfies the requirement nosuch",
    ),
    (
        "rust, a panic",
        (
            "thread 'main' panicked at src/main.rs:5:37:\n"
            "DATABASE_URL must be set: NotPresent\n"
            "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n"
        ),
        "DATABASE_URL must be set: NotPresent",
    ),
    (
        "rust, a panic of today with the thread's number",
        "\nthread 'main' (4211) panicked at src/main.rs:5:37:\nno root\nnote: run with `RUST_BACKTRACE=1`\n",
        "no root",
    ),
    (
        "rust, a panic of an older version",
        "thread 'main' panicked at 'no root', src/main.rs:5:37\nnote: run with `RUST_BACKTRACE=1`\n",
        "panicked at 'no root'",
    ),
    (
        "rust, main returns an error",
        'Error: Os { code: 2, kind: NotFound, message: "No such file" }\n',
        "kind: NotFound",
    ),
    (
        "rust, anyhow",
        (
            "Error: cannot read the settings\n\nCaused by:\n    0: cannot open /etc/x.toml\n"
            "    1: No such file or directory (os error 2)\n"
        ),
        "Error: cannot read the settings 1: No such file or directory (os error 2)",
    ),
    (
        "rust, clap",
        "error: the following required arguments were not provided:\n  --root <ROOT>\n\nUsage: server --root <ROOT>\n",
        "error: the following required arguments were not provided",
    ),
    (
        "java, an exception with its cause",
        (
            'Exception in thread "main" java.lang.ExceptionInInitializerError\n'
            "\tat com.example.Main.main(Main.java:5)\n"
            "Caused by: java.lang.IllegalStateException: TOKEN is not set\n"
            "\tat com.example.Settings.<clinit>(Settings.java:9)\n"
            "\t... 1 more\n"
        ),
        "Caused by: java.lang.IllegalStateException: TOKEN is not set",
    ),
    (
        "java, a class of a newer version",
        (
            'Exception in thread "main" java.lang.UnsupportedClassVersionError: Main has been compiled by a more recent '
            "version of the Java Runtime (class file version 65.0)\n\tat java.base/java.lang.ClassLoader.defineClass1\n"
        ),
        "UnsupportedClassVersionError: Main has been compiled by a more recent version",
    ),
    ("java, no such jar", "Error: Unable to access jarfile server.jar\n", "Error: Unable to access jarfile server.jar"),
    (
        "java, no such class",
        "Error: Could not find or load main class Main\nCaused by: java.lang.ClassNotFoundException: Main\n",
        "Error: Could not find or load main class Main",
    ),
    (
        "java, spring",
        (
            "2026-11-26 ERROR 1 --- [main] o.s.b.d.LoggingFailureAnalysisReporter :\n\n"
            "***************************\nAPPLICATION FAILED TO START\n***************************\n\n"
            "Description:\n\nWeb server failed to start. Port 8080 was already in use.\n\n"
            "Action:\n\nIdentify and stop the process that's listening on port 8080.\n"
        ),
        "Web server failed to start. Port 8080 was already in use.",
    ),
    (
        "dotnet",
        "Unhandled exception. System.InvalidOperationException: no TOKEN\n   at Program.<Main>$(String[] args)\n",
        "Unhandled exception. System.InvalidOperationException: no TOKEN",
    ),
    (
        "ruby",
        "server.rb:3:in 'Object#start': no TOKEN (RuntimeError)\n\tfrom server.rb:6:in '<main>'\n",
        "no TOKEN (RuntimeError)",
    ),
    (
        "php",
        "PHP Fatal error:  Uncaught Exception: no TOKEN in /srv/s.php:3\nStack trace:\n#0 {main}\n  thrown in /srv/s.php on line 3\n",
        "PHP Fatal error:  Uncaught Exception: no TOKEN",
    ),
    ("perl", "no TOKEN at server.pl line 3.\n", "no TOKEN at server.pl line 3."),
    (
        "c++",
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no TOKEN\n",
        "what():  no TOKEN",
    ),
    (
        "a library that is missing",
        "./server: error while loading shared libraries: libssl.so.1.1: cannot open shared object file\n",
        "libssl.so.1.1: cannot open shared object file",
    ),
    ("a shell", "sh: 1: nosuchserver: not found\n", "nosuchserver: not found"),
    ("bash", "bash: line 1: nosuchserver: command not found\n", "nosuchserver: command not found"),
    ("env", "env: 'node': No such file or directory\n", "env: 'node': No such file or directory"),
    (
        "docker, no such image",
        (
            "Unable to find image 'nosuch:latest' locally\n"
            "docker: Error response from daemon: pull access denied for nosuch, repository does not exist.\n\n"
            "Run 'docker run --help' for more information\n"
        ),
        "docker: Error response from daemon: pull access denied for nosuch",
    ),
    (
        "docker, no daemon",
        "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n",
        "Cannot connect to the Docker daemon",
    ),
    (
        "dragoman",
        "dragoman: calculator.py has nothing to serve; write api = Service('calculator') in it\n",
        "has nothing to serve",
    ),
    ("words alone", "warming up\nthe licence has expired\n", "the licence has expired"),
    ("nothing", "\n  \n", ""),
]
