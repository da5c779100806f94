"""What a program and the NIC say to each other of a packet beside its bytes: the word `metadata` of struct conic_buf."""

from dataclasses import dataclass
from typing import Optional, Tuple

# conic.h, CONIC_OFFLOAD_.
OFFLOADS = {"requests": 1, "verify": 2, "strip": 4, "unfinished": 8, "join": 16}

# conic.h, CONIC_META_.
BEGUN, NETWORK, LARGE, VLAN, HASH = (1 << bit for bit in range(48, 53))
TRANSPORT_GOOD, TRANSPORT_BAD, NETWORK_GOOD, NETWORK_BAD = (1 << bit for bit in range(53, 57))


@dataclass(frozen=True)
class Metadata:
    """What is asked for of a packet that is sent, or said of one that was received.

    | field | sent | received |
    |---|---|---|
    | `checksum` | complete TCP's or UDP's checksum: (where its header begins in the frame, where the checksum lies in the header) | it is not complete, and need not be |
    | `ipv4_checksum` | fill in the IPv4 header's | - |
    | `segment` | cut the packet into several with so many bytes of payload each; goes with `checksum` | it stands for several |
    | `vlan` | put in a tag with this control information: 3 bits of priority, 1, 12 of VLAN | the tag that was taken out |
    | `hash` | - | the hash of its flow |
    | `checksum_is_right`, `ipv4_checksum_is_right` | - | True, False, or None where there is none or nobody looked |

    The field of a checksum to be completed holds the sum of the pseudo-header, not complemented.
    """

    checksum: Optional[Tuple[int, int]] = None
    ipv4_checksum: bool = False
    segment: Optional[int] = None
    vlan: Optional[int] = None
    hash: Optional[int] = None
    checksum_is_right: Optional[bool] = None
    ipv4_checksum_is_right: Optional[bool] = None

    def request(self):
        """The word for the NIC. Raises `ValueError` where it says what only the NIC can, or what means nothing."""
        told = ("hash", "checksum_is_right", "ipv4_checksum_is_right")
        if any(getattr(self, name) is not None for name in told):
            raise ValueError(f"{', '.join(told)} are said by the NIC and cannot be sent")
        word = NETWORK if self.ipv4_checksum else 0
        if self.checksum is not None:
            start, offset = self.checksum
            word |= BEGUN | _field("checksum", start, 0xFF) | _field("checksum", offset, 0xFF) << 8
        if self.segment is not None:
            if self.checksum is None or self.segment == 0:
                raise ValueError("a packet is cut by at least one byte of payload, and its checksum is completed: give both")
            word |= LARGE | _field("segment", self.segment, 0xFFFF) << 16
        if self.vlan is not None:
            word |= VLAN | _field("vlan", self.vlan, 0xFFFF) << 32
        return word

    @classmethod
    def of(cls, word):
        """What the NIC says by a word."""
        begun = bool(word & BEGUN)
        return cls(
            checksum=(word & 0xFF, word >> 8 & 0xFF) if begun else None,
            ipv4_checksum=bool(word & NETWORK),
            segment=word >> 16 & 0xFFFF if word & LARGE else None,
            vlan=word >> 32 & 0xFFFF if word & VLAN else None,
            hash=word & 0xFFFFFFFF if word & HASH else None,
            checksum_is_right=_verdict(word, TRANSPORT_GOOD, TRANSPORT_BAD),
            ipv4_checksum_is_right=_verdict(word, NETWORK_GOOD, NETWORK_BAD),
        )


class Frame(bytes):
    """A received frame: bytes, with `metadata`, what the NIC says of it."""

    def __new__(cls, data, word=0):
        frame = super().__new__(cls, data)
        frame.metadata = Metadata.of(word)
        return frame


def _field(name, value, most):
    if not 0 <= value <= most:
        raise ValueError(f"{name} has numbers from 0 to {most}, and not {value}")
    return value


def _verdict(word, good, bad):
    return True if word & good else False if word & bad else None


def offloads_of(names):
    """The flags of struct conic_options for some names."""
    unknown = set(names) - set(OFFLOADS)
    if unknown:
        raise ValueError(f"there is no offload {', '.join(sorted(unknown))}; there are {', '.join(OFFLOADS)}")
    if names and "requests" not in names:
        raise ValueError("the other offloads go with 'requests'")
    if "join" in names and "unfinished" not in names:
        raise ValueError("'join' goes with 'unfinished'")
    return sum(OFFLOADS[name] for name in set(names))
