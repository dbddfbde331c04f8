# ranker.py
import time

import mark


class Ranker(mark.Model):
    inputs = (mark.TensorSpec("features", "FP32", (3,)),)

    def predict(self, batch):
        time.sleep(0.005 + 0.0002 * len(batch))
        return [features.sum() for features in batch]
