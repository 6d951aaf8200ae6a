module github.com/lockstile/locker/register/sqltable

go 1.26.0

require github.com/lockstile/locker v0.0.0

require golang.org/x/sys v0.50.0 // indirect

replace github.com/lockstile/locker => ../..
