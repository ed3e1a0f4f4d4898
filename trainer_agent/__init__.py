"""The node agent: runs training, enforces shares, hands models over to the inference server.

::

    main → agent                 starts and composes what is below
    deliveries                   from a tier that was reached to a version that answers
    runs  inference_server  fence
                                 what trains · what answers · the end of all runs, in time
    trainer_socket  connection  models  runtimes
                                 to a script · to the broker · versions on disk · processes and containers
    limits  accelerators         who may use how much · what is there to use
    reports  disk                what runs say · what lies on the disk

A room uses rooms below it only. ``trainer`` is the library that a script imports, ``workloads`` are scripts that ship
with it: of the agent they know nothing but which names metrics may have.
"""
