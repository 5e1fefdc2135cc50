"""The commands by name, with one line about each. Constants only: this is what `--help` costs."""

COMMANDS = {
    "up": "Bring in what is new, follow it, and show it in a browser.",
    "sync": "Bring Letta Code's directory in, and sync with your host.",
    "push": "Give your account's host what is new here.",
    "pull": "Take what is new at your account's host.",
    "clone": "Bring a space to this machine from its host.",
    "conversations": "List conversations, the most recently used first.",
    "agents": "List agents.",
    "show": "Show a conversation: its transcript, or what the model sees.",
    "prompt": "Show a conversation's compiled system prompt.",
    "record": "Show a record as stored, by its URI.",
    "search": "Find text in every message, compacted ones too.",
    "secrets": "Say where passwords, tokens and keys stand, not what they are.",
    "usage": "Add up tokens and cost, by day and model.",
    "export": "Export a conversation without its secrets, or the whole space.",
    "import": "Bring the archive of a whole space in.",
    "letta": "Letta Code's directory: what differs, restore, resume.",
    "pi": "Bring sessions of pi in, or write conversations as such.",
    "adopt": "Move the space into the account that is signed in.",
    "status": "Say where the space is, what it holds, what is not in it yet.",
    "verify": "Check everything stored; exit 1 if anything is wrong.",
    "repair": "Finish compactions that were interrupted.",
    "login": "Sign in to your account's host, to keep the space there too.",
    "logout": "Sign out. The space on this machine stays.",
    "whoami": "Say who is signed in, where, and what the host can do.",
    "serve": "Serve a host: repos and spaces of its accounts, over XRPC.",
    "account": "The accounts of a host: add, list, remove, passwords.",
    "host": "A host as a whole: back it up, restore it, sign everybody out.",
    "space": "The spaces of a host: create, list, delete, members, policies.",
}
"""Each is the module of that name in `lettaspace.cli.commands`; `import` is `import_`."""

HELP = (
    """\
Usage: lettaspace [--home DIR] COMMAND [ARGUMENTS]

  AI agents' conversations in a permissioned space: private, yours, never lost.

Options:
  --home DIR  Where your space is kept. Default: $LETTASPACE_HOME, or the
              platform's data directory.
  --version   Print the version.
  --help      Print this. `lettaspace COMMAND --help` tells more of a command.

Commands:
"""
    + "\n".join(f"  {name:<15}{about}" for name, about in COMMANDS.items())
    + "\n\nReading commands take --json: one JSON document, whose shape is a contract."
)
