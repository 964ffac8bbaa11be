#!/usr/bin/env python3
"""What every store promises (tandem/store/store_test.cpp), asked of an S3 server of another make."""

import argparse
import os
import subprocess

import s3_server


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tests", required=True, help="the binary tandem_store_test")
    arguments = parser.parse_args()
    with s3_server.S3Server() as server:
        environment = {**os.environ, **server.variables, "TANDEM_TEST_STORE": "s3://bucket/promises"}
        return subprocess.run([arguments.tests, "--gtest_filter=*EveryStore*server", "--gtest_fail_fast"],
                              env=environment).returncode


if __name__ == "__main__":
    s3_server.skip_without_server(main)
