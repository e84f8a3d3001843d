#!/bin/bash
echo begun; sleep 60
