"""hit_ratios.py FOLDER SIZE...: prints the hit ratio of each policy, on each trace of the folder, in caches of these sizes."""

import array
import pathlib
import sys

import libcachesim

POLICIES = {"S3Fifo": libcachesim.S3FIFO, "Sieve": libcachesim.Sieve, "Clock": libcachesim.Clock}


def hit_ratio(cache, requests):
    request = libcachesim.Request()
    request.obj_size = 1
    hits = 0
    for number in requests:
        request.obj_id = number
        hits += cache.get(request)
    return hits / len(requests)


def main(folder, *sizes):
    for trace in sorted(pathlib.Path(folder).iterdir()):
        requests = array.array("I", trace.read_bytes())
        for size in map(int, sizes):
            for name, policy in POLICIES.items():
                ratio = hit_ratio(policy(cache_size=size, hashpower=18), requests)
                print(f'    ("{trace.name}", {size}, Policy::{name}, {ratio:.4f}),', flush=True)


main(*sys.argv[1:])
