# Random schedules of requests, kills and retries, held against a prediction: t/lib/Idem/Soak.pm. A few of them here;
# `make soak` runs 10,000. SCHEDULES=N, SEED=N (printed; round k of a seed is round 0 of seed + k),
# ROUND=N schedules side by side.
use strict;
use warnings;
use Idem::Soak;
use Idem::Test;
use Time::HiRes qw(time);

my $seed = $ENV{SEED} // time % 1_000_000_000;
my $schedules = $ENV{SCHEDULES} // 96;
my $side_by_side = $ENV{ROUND} // ($schedules > 500 ? 64 : 48);
$seed = int $seed;
print "# SEED=$seed SCHEDULES=$schedules ROUND=$side_by_side\n";

my $begun = time;
my $soak = Idem::Soak->new;
my $sum = $soak->{sum};
for my $round (0 .. int(($schedules - 1) / $side_by_side)) {
    my $left = $schedules - $round * $side_by_side;
    $soak->round($seed + $round, $left < $side_by_side ? $left : $side_by_side) or last;
    printf STDERR "# %d schedules, %d s\n", $sum->{schedules}, time - $begun if $schedules > 1000 && $round % 10 == 9;
}
my $equal = $sum->{replays} ? 100 * (1 - ($sum->{different} // 0) / $sum->{replays}) : 0;
printf "# %d schedules, %d events, %d kills, %d graceful restarts, %d s\n# answers: %s\n", map({ $sum->{$_} // 0 } qw(schedules events kills gracefuls)), time - $begun,
    join ', ', map { "$_ $sum->{answers}{$_}" } sort keys %{ $sum->{answers} || {} };
printf "# %-28s %s\n", @$_ for [ 'duplicate effects', $sum->{'duplicate effects'} // 0 ], [ 'false conflicts', $sum->{'false conflicts'} // 0 ],
    [ 'other surprises', $sum->{surprises} // 0 ], [ 'replay digests equal', sprintf '%.4f %% of %d', $equal, $sum->{replays} // 0 ],
    [ 'rows left UNKNOWN', sprintf '%d, %d of them without cause', $sum->{unknown} // 0, $sum->{'rows UNKNOWN without cause'} // 0 ];
is($sum->{schedules} // 0, $schedules, 'all schedules have run');
cmp_ok($sum->{replays} // 0, '>', 0, 'there were replays');
cmp_ok($sum->{kills} // 0, '>', 0, 'there were kills');
is(join("\n", map { "\n$_" } @{ $soak->{wrong} }[ 0 .. ($#{ $soak->{wrong} } < 4 ? $#{ $soak->{wrong} } : 4) ]), '', 'nothing was seen that the prediction does not allow');
is($equal, 100, 'every replay has the octets of the first answer');
for my $t (reverse @{ $soak->{t} }) {
    $t->httpd->allow_log(qr/exit signal Killed|AH00052|AH00288|AH00484|AH01102|AH00898|AH03490|AH10159|AH00161|IDEM0401|IDEM0805|IDEM1501|IDEM0808|AH10392|AH00045/);
    $t->allow_pg_log(qr/IDEM1|generation|administrator command|connection to client lost|idempotency_|unexpected EOF/);
    $t->finish(more => $t != $soak->{t}[0]);
}
