"""Write answers.csv for `mark selection replay`: the answers of both models to images that they were not trained on."""

import csv

from digits import Large, Small, halves


def main() -> None:
    _, _, images, labels = halves()
    columns = {}
    for name, model in (("small", Small()), ("large", Large())):
        model.load()
        answers = model.predict(list(images))
        columns[f"{name}.answer"] = [one["label"] for one in answers]
        columns[f"{name}.score"] = [one["score"] for one in answers]
    with open("answers.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["label", *columns])
        writer.writerows(zip(labels.tolist(), *columns.values(), strict=True))


if __name__ == "__main__":
    main()
