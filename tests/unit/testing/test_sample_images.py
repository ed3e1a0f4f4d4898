from __future__ import annotations

import numpy as np
import pytest
import torch

from testing.sample_images import autoencoder_samples, classifier_samples, load_samples
from tiercel.trainer_agent.workloads.data import load_digits, load_mnist
from tiercel.trainer_agent.workloads.mnist_vae import negative_evidence


def test_a_classifier_scores_one_for_the_right_class_and_zero_for_others() -> None:
    data = load_digits()
    samples = classifier_samples(data)
    rights = []
    for number, image in enumerate(samples.images):
        (where,) = np.nonzero((data.x_test == image).all(axis=(1, 2)))
        scores = np.eye(10)[data.y_test[where[0]]]
        rights.append((samples.score(number, {"scores": scores}), samples.score(number, {"scores": -scores})))
    assert len(rights) == len(data.x_test)
    assert set(rights) == {(1.0, 0.0)}


def test_few_images_hold_all_classes() -> None:
    data = load_digits()
    first = classifier_samples(data).images[:60]
    classes = {int(data.y_test[(data.x_test == image).all(axis=(1, 2)).argmax()]) for image in first}
    assert classes == set(range(10))


def test_the_mean_score_of_an_autoencoder_is_the_workloads_metric() -> None:
    data = load_mnist()
    samples = autoencoder_samples(data)
    generator = torch.Generator().manual_seed(1)
    count = 50
    drawn = torch.rand((count, 784), generator=generator)
    mean, log_variance = torch.randn((2, count, 20), generator=generator)
    wanted = torch.from_numpy(samples.images[:count].reshape(count, -1))
    expected = float(negative_evidence([drawn, mean, log_variance], wanted))
    scores = [
        samples.score(
            number,
            {
                "reconstruction": drawn[number].double().numpy(),
                "mean": mean[number].double().numpy(),
                "log_variance": log_variance[number].double().numpy(),
            },
        )
        for number in range(count)
    ]
    assert np.mean(scores) == pytest.approx(expected, rel=1e-5)


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="digits, mnist or mnist-autoencoder"):
        load_samples("cats")
