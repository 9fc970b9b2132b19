from takt.schema.encoded_image import EncodedImage


def test_an_owned_image_shares_no_memory_and_is_otherwise_the_same() -> None:
    buffer = bytearray(b"file")
    image = EncodedImage(encoding="png", data=memoryview(buffer), shape=(4, 5, 3))

    owned = image.owned()
    buffer[:] = b"gone"

    assert bytes(owned.data) == b"file"
    assert (owned.encoding, owned.shape) == ("png", (4, 5, 3))


def test_its_pixels_are_counted_as_announced() -> None:
    assert EncodedImage(encoding="jpeg", data=b"x", shape=(480, 640, 3)).decoded_bytes == 921_600
