-- Flights with what is known of each before it departs, and whether it came late.
--
-- Reads `flights`, `weather` and `planes`, as the samples of these names have them. Whatever a flight
-- did (departure, delay, time in the air) is used for the two labels alone. The weather is what was
-- observed in the hour before the scheduled one: that of the scheduled hour may be younger than the
-- departure. Flights that were cancelled or diverted have no arrival to be late, and are left out.
SELECT
    concat_ws(' ', f.carrier, f.flight, f.origin, date_format(f.time_hour, 'yyyy-MM-dd HH')) AS flight,
    make_date(f.year, f.month, f.day) AS day,
    f.carrier,
    f.origin,
    f.dest,
    f.distance,
    60 * f.hour + f.minute AS departs,
    60 * (f.sched_arr_time DIV 100) + f.sched_arr_time % 100 AS arrives,
    weekday(make_date(f.year, f.month, f.day)) AS weekday,
    dayofyear(make_date(f.year, f.month, f.day)) AS day_of_year,
    f.year - p.year AS plane_age,
    p.seats,
    p.engines,
    p.engine,
    w.temp,
    w.dewp,
    w.humid,
    w.wind_dir,
    w.wind_speed,
    w.wind_gust,
    w.precip,
    w.pressure,
    w.visib,
    f.arr_delay > 15 AS late,
    f.arr_delay
FROM flights AS f
LEFT JOIN weather AS w
    ON w.origin = f.origin AND w.time_hour = f.time_hour - INTERVAL 1 HOUR
LEFT JOIN planes AS p
    ON p.tailnum = f.tailnum
WHERE f.arr_delay IS NOT NULL
