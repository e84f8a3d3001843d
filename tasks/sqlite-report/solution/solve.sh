#!/bin/bash
set -e
sqlite3 -csv -header /app/shop.db "
  SELECT region, substr(placed_on, 1, 7) AS month,
         printf('%.2f', sum(quantity * unit_cents) / 100.0) AS revenue
  FROM orders
  JOIN customers ON customers.id = orders.customer_id
  JOIN items ON items.order_id = orders.id
  WHERE status IN ('paid', 'shipped')
  GROUP BY region, month
  ORDER BY region, month" > /app/revenue.csv
