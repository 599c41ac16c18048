forever company.db doctor
# 1. The limit of the second order is raised as well.
forever company.db edit order-1043 limit=3000 --by Ann
forever company.db resume order-1043
# 2. The id is in the last column.
forever company.db resolve-op "$(forever company.db ops | awk '/charge/ { print $NF }')" --completed '"receipt 17"'
# 3.
forever company.db resolve report-9 --complete 900
# 4.
forever company.db send order-1044 approval true
# 5.
forever company.db cancel notice-77
# 6. `show` lists the message with its number.
forever company.db discard order-1046 "$(forever company.db show order-1046 | awk '$2 == "approval" { print $1 }')"
forever company.db resume order-1046
forever company.db send order-1046 approval true
# 7. The rate as it was behind the first checkpoint, and a second fiber from there.
forever company.db locals invoice-5 1
forever company.db fork invoice-5 --at 1 --set rate=19 --id invoice-5-b
# 8.
forever company.db resume --all --state failed --name deliver
# 9. The check that still waits.
forever company.db send "$(forever company.db ls --parent hire-3 --state waiting | awk 'END { print $3 }')" answer '"in order"'
# 10.
forever company.db restart quote-8
