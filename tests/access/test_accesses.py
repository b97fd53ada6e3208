"""Words of access rules: those of RocketMQ, so that rules written for it can be read."""

from pocketmq.access.accounts import Access, Action, Resource


def test_words_for_permissions_are_those_of_rocketmq() -> None:
    assert [resource.value for resource in Resource] == ["Cluster", "Topic", "Group"]
    assert [action.value for action in Action] == ["Pub", "Sub", "Create", "Update", "Delete", "Get", "List"]


def test_an_access_need_not_name_one_resource() -> None:
    assert Access(Resource.CLUSTER, Action.GET).named_by is None
    assert Access(Resource.TOPIC, Action.GET, named_by="topic").named_by == "topic"
