"""What runs when, and with what: requests are checked, wait, and run together with those that came with them.

There is no window: no call waits for company. ``dispatcher`` lives on the event loop and runs the calls of models and
of endpoints, ``fair_queue`` says whose turn it is, ``rows`` puts batches together and takes them apart; ``variants``
answers for several models by one name.
"""
