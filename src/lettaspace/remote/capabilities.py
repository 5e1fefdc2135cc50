"""What is known of a host: found out by `probe` at sign-in and later, kept with the account."""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lettaspace.errors import Damaged
from lettaspace.remote.limits import Limits

if TYPE_CHECKING:
    from lettaspace.atproto.proof import Generation

_ANSWERS: Final = (True, False, None)
_GENERATIONS: Final[dict["Generation | None", str]] = {
    "signature": "It speaks spaces as they are now, with HTTP message signatures.",
    "dpop": "It speaks spaces as in August 2026, with DPoP.",
    None: "It speaks spaces; which generation shows with the first credential.",
}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What is known of a host, for one session."""

    generation: "Generation | None"
    """Its proofs and names: today's (`signature`), August 2026's (`dpop`), None if it is not
    known before the first credential."""
    delegates: bool
    """Whether the session gets credentials, without which no other member's repo can be read."""
    leaks_blobs: bool | None
    """Whether anybody is given blobs that only private records refer to; None: not known."""
    limits: Limits = field(default_factory=Limits)
    """What hosts of the protocol take: none says so itself, and lower ones are learnt."""

    def json(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "delegates": self.delegates,
            "leaksBlobs": self.leaks_blobs,
            "limits": asdict(self.limits),
        }

    @classmethod
    def read(cls, form: Any) -> "Capabilities":
        """Raises Damaged."""
        try:
            generation, limits = form["generation"], Limits(**form["limits"])
            flags = form["delegates"], form["leaksBlobs"]
        except (LookupError, TypeError):
            raise Damaged("what is known of the host cannot be read; sign in again") from None
        known = generation in tuple(_GENERATIONS)
        numbers = all(type(number) is int for number in asdict(limits).values())
        if not known or not numbers or type(flags[0]) is not bool or flags[1] not in _ANSWERS:
            raise Damaged("what is known of the host cannot be read; sign in again")
        return cls(generation, *flags, limits)

    def words(self) -> list[str]:
        """The same in sentences; each thing that the host cannot do has one."""
        said = [_GENERATIONS[self.generation]]
        if not self.delegates:
            said.append(
                "This session cannot read other members' repos: the host gives it no delegation. "
                "App passwords never get one; OAuth and the account's own password do."
            )
        if self.leaks_blobs:
            said.append(
                "This host gives blobs of private records to anybody who knows their names. "
                "lettaspace seals every blob, so what leaks is ciphertext."
            )
        elif self.leaks_blobs is None:
            said.append(
                "Whether it gives blobs to anybody shows once it has some. lettaspace seals every "
                "blob."
            )
        return said
