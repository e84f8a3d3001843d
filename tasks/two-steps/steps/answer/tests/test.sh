#!/bin/bash
if diff /tests/wanted.txt <(tr -s ' \t' ' ' < /app/answer.txt); then echo 1; else echo 0; fi > /logs/verifier/reward.txt
