#!/bin/bash
set -e
sed -i "3s/8080/8443/" /app/server.ini
