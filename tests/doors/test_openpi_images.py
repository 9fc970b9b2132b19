from takt.doors.openpi_images import image_offer
from takt.schema.resizing import resize_check
from takt.schema.spec import CameraSpec, ObservationSpec

TOP = CameraSpec(name="top", height=4, width=5, resize="stretch")
FIXED = CameraSpec(name="top", height=4, width=5, robot_may_resize=False)


def test_a_server_offers_what_it_can_decode_and_how_it_resizes() -> None:
    assert image_offer(ObservationSpec(cameras=(TOP,))) == {
        "encodings": ["jpeg", "png"],
        "resize_check": resize_check(),
    }


def test_where_no_robot_may_resize_there_is_nothing_to_compare() -> None:
    assert image_offer(ObservationSpec(cameras=(FIXED,))) == {"encodings": ["jpeg", "png"]}
    assert image_offer(ObservationSpec()) == {"encodings": ["jpeg", "png"]}


def test_a_policy_that_reads_several_instants_is_offered_nothing() -> None:
    assert image_offer(ObservationSpec(cameras=(TOP,), history=2)) == {"encodings": []}
