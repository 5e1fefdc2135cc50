"""Writes the records of a conversation by hand, as any writer of the lexicons may."""

from lettaspace.conversation.codec import encode
from lettaspace.conversation.records import AGENT, CONVERSATION, MESSAGE, envelope
from lettaspace.conversation.shapes import LOCAL_MESSAGE
from lettaspace.space.writes import Create, Delete, Update

TIME = "2024-03-05T10:00:00.000Z"


def text(value):
    return {"type": "text", "text": value}


def call(call_id, name="ls", arguments=None):
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments or {}}


class Talk:
    """One conversation. Messages are told apart by `name`, which is their text too."""

    def __init__(self, space, rkey="3lalalalala22", agent="agent-otter", recorded=True):
        self.space = space
        self.rkey = rkey
        self.agent = space.address.agent(agent)
        self.uri = space.address.conversation(rkey)
        self.tids = {}
        self._minted = 0
        if recorded:
            if space.repo.get(AGENT, agent) is None:
                space.repo.apply_writes([Create(AGENT, agent, {"name": "Otter"})])
            space.repo.apply_writes(
                [Create(CONVERSATION, rkey, {"agent": self.agent, "createdAt": TIME})]
            )

    def record(self, seq, role="user", content=None, name="", **fields):
        data = {"id": f"ui-msg-{seq}", "role": role, "content": content or [text(name)]}
        for key in ("toolCallId", "metadata", "stopReason"):
            if key in fields:
                data[key] = fields.pop(key)
        payload = fields.pop("payload", None)
        encoded = encode(data, LOCAL_MESSAGE)
        value = {
            "conversation": self.uri,
            "agent": self.agent,
            "role": role,
            "seq": seq,
            "message": payload or envelope("letta.localMessage", 1, encoded.value),
            "createdAt": fields.pop("created", TIME),
        }
        for key in ("status", "updatedAt"):
            if key in fields:
                value[key] = fields.pop(key)
        if "covers" in fields:
            value["compactedMessageIds"] = [
                self.tids.get(each, each) for each in fields.pop("covers")
            ]
        assert not fields, fields
        return value, encoded.blobs

    def add(self, name, seq, *, rkey=None, **fields):
        value, blobs = self.record(seq, name=name, **fields)
        (written,) = self.space.repo.apply_writes([Create(MESSAGE, rkey, value)], blobs=blobs)
        self.tids[name] = written.rkey
        return written.rkey

    def rewrite(self, name, seq, **fields):
        value, blobs = self.record(seq, name=name, **fields)
        self.space.repo.apply_writes([Update(MESSAGE, self.tids[name], value)], blobs=blobs)

    def remark(self, name, **fields):
        """Changes core fields of a stored message; its payload stays as it is."""
        stored = self.space.repo.get(MESSAGE, self.tids[name]).value
        self.space.repo.apply_writes([Update(MESSAGE, self.tids[name], {**stored, **fields})])

    def delete(self, name):
        self.space.repo.apply_writes([Delete(MESSAGE, self.tids[name])])

    def names(self, messages):
        known = {tid: name for name, tid in self.tids.items()}
        return [known[message.rkey] for message in messages]

    def window(self):
        return self.names(self.space.window(self.uri).messages)

    def transcript(self):
        return self.names(self.space.transcript(self.uri))
