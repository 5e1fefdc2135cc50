"""How much a host allows."""

from dataclasses import dataclass, fields

from lettaspace.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Rates:
    """What is allowed in each window; 0 is no limit. Raises InvalidInput for less.

    Of an account: points of writes (create 3, update 2, delete 1), blobs, delegations, and sign-ins
    in its name. Of an address: sign-ins, exchanges of delegations, notices of other hosts,
    requests without authorization, and requests whose authorization is refused.
    """

    writes_per_hour: int = 5_000
    writes_per_day: int = 35_000
    uploads_per_hour: int = 5_000
    delegations_per_hour: int = 2_000
    sign_ins_of_account: int = 100
    """In five minutes, as all that follow. More than of an address, so that nobody alone can
    keep another from signing in."""
    sign_ins: int = 30
    exchanges: int = 1_500
    notices: int = 3_000
    anonymous: int = 3_000
    refused: int = 300

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) < 0:
                raise InvalidInput(f"limit {each.name}: is less than 0")

    @classmethod
    def none(cls) -> "Rates":
        """No limits."""
        return cls(**dict.fromkeys((each.name for each in fields(cls)), 0))
