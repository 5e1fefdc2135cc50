"""Checks of a host from outside: what any host of spaces must do, whoever wrote it.

They run against two hosts of ours, each a process of its own on loopback, or against the host at

    LETTASPACE_BLACKBOX_URL      https://host.example
    LETTASPACE_BLACKBOX_OWNER    handle password    of an account there
    LETTASPACE_BLACKBOX_MEMBER   handle password    of another account
    LETTASPACE_BLACKBOX_MEMBER_URL                  its host, if that is another one

Whatever they make they make in spaces of their own, which they delete.
"""
