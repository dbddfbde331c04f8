"""Personal heads in a server: the stage, its learner, feedback without an answer, and the routes."""
