package Idem::Soak;

# Random schedules of requests, kills and retries over two httpd and one PostgreSQL, each schedule with a key of its own;
# what is seen is held against Idem::Prediction. Many go side by side, in rounds: in every phase of a round each schedule
# does one thing, then an instance may be killed, restarted, or the leases of the dead may end. In the end everything is
# let go and every client tries again; what is UNKNOWN is resolved as an operator does who looks into the backend's table.
#
#   my $soak = Idem::Soak->new;             # two servers on one registry, and the orders' server behind them
#   $soak->round($seed, 64);                # so many schedules; repeatable
#   $soak->{sum}, $soak->{wrong}            # counts, and what no prediction allows

use strict;
use warnings;
use Idem::Orders;
use Idem::Prediction qw(follow key_of locked may_resolve points start waits);
use Idem::Test;
use JSON::PP ();
use Time::HiRes qw(sleep time);

my @MODES = qw(external marked front repeatable transactional bare);
my $BODY = '{"amount":10}';

sub new {
    my ($class) = @_;
    my $self = bless { sum => {}, wrong => [], rounds => 0 }, $class;
    for my $n (0, 1) {
        my $first = $self->{t}[0];
        my $t = Idem::Test->new(start => 0, ($first ? (pg => $first->pg) : (pg_arg => { settings => { max_connections => 300 } })),
            modules => [qw(proxy proxy_http)], db_user => "web$n", mpm => 'event',
            mpm_config => "ServerLimit 4\nStartServers 1\nThreadsPerChild 100\nThreadLimit 100\nMaxRequestWorkers 400\nMinSpareThreads 1\nMaxSpareThreads 400\n");
        push @{ $self->{t} }, $t;
        $t->pg->do("CREATE ROLE web$n LOGIN IN ROLE idempotency_writer");
        my $orders = Idem::Orders->new($t);
        $self->{orders} //= $orders;
        $t->httpd->{env}{IDEM_STOP_DIR} = $self->{orders}{dir};
        my $root = $t->root;
        mkdir "$root/htdocs/front";
        my $proxy = { by => 'proxy' };
        $t->httpd->{config} = $t->expand($orders->load . "ProxyTimeout 150\nIdempotencyStoreTimeout 20s\nIdempotencyLease 120s\n"
            . sprintf(qq(ProxyPass "/plain" "http://127.0.0.1:%d"\n), $self->{orders}->serve)
            . join('', map { $self->{orders}->place("/$_", /marked/ ? 'external' : $_, $proxy, /marked/ ? 'IdempotencyDispatchMark On' : ()) } grep { $_ ne 'front' } @MODES)
            . qq(<Location "/front">\n\@AUTH\@\nIdempotencyRoute front\nIdempotencyTenant server\nIdempotencyPrincipal user\nIdempotencyDispatchMark On\n</Location>\n)
            . qq(<Directory "$root/htdocs/front">\nRewriteEngine On\nRewriteRule ^ /plain/external [L]\n</Directory>\n));
        $t->httpd->start;
    }
    return $self;
}

sub pg { $_[0]{t}[0]->pg }
sub httpd { $_[0]{t}[ $_[1] ]->httpd }
# One session for all that is asked of the database: rows, and the first value.
sub rows {
    my ($self, $sql) = @_;
    $self->{db} //= $self->pg->session;
    return map { JSON::PP->new->utf8->decode($_) } split /\n/, $self->{db}->run("WITH q AS ($sql) SELECT row_to_json(q) FROM q");
}
sub value { my ($self, $sql) = @_; $self->{db} //= $self->pg->session; my ($line) = split /\n/, $self->{db}->run($sql); return $line }
sub any { return $_[ int rand @_ ] }

# ---- one schedule

sub told {
    my ($res) = @_;
    return 'lost' if !$res || !$res->{complete};
    my $said = $res->is_json ? $res->json : {};
    return $1 if ($said->{type} // '') =~ /:mod-idempotency,2026:(.*)/;
    return 'replay ' . ($said->{found} ? 'found' : $said->{generation} // '?') if $res->replayed;
    return $res->status == 201 ? 'ran ' . ($said->{generation} // '?') : 'said ' . $res->status;
}

# What was seen has to be among what may be seen; the states that remain are those in which it may.
sub saw {
    my ($self, $one, $event, $answer, $res) = @_;
    my @may = follow($one->{states}, $event);
    my @left = grep { !defined $_->[0] || grep { $_ eq $answer } split /\|/, $_->[0] } @may;
    my $text = "@$event" . (defined $may[0][0] ? ": $answer" : '');
    push @{ $one->{story} }, $text;
    $self->{sum}{events}++;
    $self->{sum}{answers}{ $answer =~ s/ .*//r }++ if defined $may[0][0] && $event->[0] ne 'effects';
    if (@left) {
        my %seen;
        $one->{states} = [ grep { !$seen{ key_of($_) }++ } map { $_->[1] } @left ];
    }
    else {
        $self->wrong($one, "$text, allowed: " . join(', ', map { $_->[0] } @may), $event->[0] eq 'effects' ? 'surprises'
            : $answer =~ /^(?:in-progress|outcome-unknown|key-reused|response-not-stored)$/ ? 'false conflicts' : 'surprises');
        # it is only let go now
        $one->{over} = 1;
        $self->{orders}->go(@{ $one->{given} || [] });
    }
    # every replay of one answer has its octets
    if ($res && $answer =~ /^(replay|ran) (.*)/) {
        my ($how, $of, $digest) = ($1, $2, sha256($res->body));
        $one->{digest}{$of} //= $digest;
        $self->{sum}{replays}++ if $how eq 'replay';
        if ($one->{digest}{$of} ne $digest) {
            $self->{sum}{different}++;
            $self->wrong($one, "$text: other octets", 'surprises');
        }
    }
    return;
}

sub wrong {
    my ($self, $one, $what, $kind) = @_;
    $self->{sum}{$kind}++;
    push @{ $self->{wrong} }, "seed $self->{seed}, $one->{mode}, $one->{key} ($kind): $what\n    " . join("\n    ", @{ $one->{story} });
    return;
}

# What this schedule may do now: events of the prediction, and of them one by chance.
sub choose {
    my ($self, $one) = @_;
    my ($s, @more) = @{ $one->{states} };
    my @may;
    push @may, [ 'other' ] if $s->{rec} ne 'none' && !@more;
    my $tag = $one->{key} . '-' . ++$one->{tags};
    my @stops = grep { $_ ne 'redirected' || $one->{mode} eq 'front' } points($one->{mode});
    my $point = rand() < 0.25 ? 'end' : any(@stops);
    push @may, map { [ send => $tag, $point, rand() < 0.1 && $point !~ /answered|settled/ ? 500 : 201, int rand 2 ] } 1 .. 3;
    # a replay would be stopped there, too
    $_->[2] = 'end' for grep { $_->[2] eq 'settled' && grep { $_->[0] ne 'parked' } follow($one->{states}, $_) } grep { $_->[0] eq 'send' } @may;
    push @may, [ burst => $tag, int rand 2 ] if rand() < 0.3;
    if (!@more) {
        for my $held (sort keys %{ $s->{at} }) {
            push @may, [ go => $held ] unless waits($s, $held);
            push @may, [ backend => $held ] if $s->{at}{$held}{point} =~ /^(?:before|committing|after)$/ && rand() < 0.4;
        }
        push @may, [ 'overrun' ] if rand() < 0.3 && !locked($s) && $s->{rec} =~ /^(?:reserved|executing)$/;
        push @may, [ 'resolve' ] if may_resolve($s);
    }
    return any(@may);
}

# Requests are sent and not waited for; whoever waits is given what comes.
sub begin {
    my ($self, $one, $event) = @_;
    my ($name, $tag, @with) = @$event;
    my @header = $name eq 'send' && $with[1] == 500 ? ('X-Answer' => 500) : ();
    my $point = $name eq 'send' ? $with[0] : 'end';
    push @header, ($point =~ /^(?:redirected|handler|answered|settled)$/ ? 'X-Stop' : 'X-Hold') => "$point $tag" if $point ne 'end';
    push @{ $one->{given} }, $tag if $point ne 'end';
    my $in = $name eq 'send' ? $with[2] : $with[0];
    my @request = (POST => "/$one->{mode}" . ($one->{mode} eq 'front' ? '/pay' : ''), key => $one->{key}, body => $name eq 'other' ? '{"amount":11}' : $BODY, headers => \@header);
    my @all = map { $self->{t}[ ($in // rand 2) ^ ($_ & 1) ]->client->with(authority => 'shop')->send(@request) } 0 .. ($name eq 'burst' ? 3 : 0);
    return { one => $one, event => $event, connections => \@all, tag => $tag, point => $point };
}

# What has come of it: the answer and the response; undef while there is none.
sub result {
    my ($self, $asked, $patience) = @_;
    my ($connection) = @{ $asked->{connections} };
    my $there;
    wait_for(sub { $there = $asked->{point} ne 'end' && $self->{orders}->reached($asked->{tag}) ? 'parked' : !$connection->silent(0) ? 'answered' : undef; defined $there }, $patience // 30)
        or return ('nothing', undef);
    return ('parked', undef) if $there eq 'parked';
    my $res = eval { $connection->response };
    return (told($res), $res);
}

sub finish {
    my ($self, $asked) = @_;
    my ($one, $event) = @$asked{qw(one event)};
    if ($event->[0] eq 'burst') {
        my @res = map { eval { $_->response } } @{ $asked->{connections} };
        my @told = map { told($_) } @res;
        my @ran = grep { /^ran/ } @told;
        # the one that ran says so; the others have to be in accord with it, or with each other
        my ($main) = (@ran, (grep { $_ ne 'in-progress' } @told), @told);
        push @{ $one->{story} }, "burst: @told";
        my $before = $one->{states};
        $self->saw($one, $event, $main, $res[0] && $told[0] eq $main ? $res[0] : undef);
        my @allowed = map { split /\|/, $_->[0] } grep { $_->[0] =~ /(?:^|\|)\Q$main\E(?:\||\z)/ } follow($before, $event);
        my %allowed = map { $_ => 1 } @allowed;
        if (@ran > 1 || grep { !$allowed{$_} } @told) {
            $self->wrong($one, "burst: @told", @ran > 1 ? 'surprises' : 'false conflicts');
        }
        return;
    }
    my ($answer, $res) = $self->result($asked);
    $self->{open}{ $asked->{tag} } = $asked->{connections}[0] if $answer eq 'parked';
    return $self->saw($one, $event, $answer, $res);
}

# Events that are no requests.
sub act {
    my ($self, $one, $event) = @_;
    my ($name, $tag) = @$event;
    my $s = $one->{states}[0];
    if ($name eq 'go' || $name eq 'backend') {
        my $held = $s->{at}{$tag};
        $name eq 'go' ? $self->{orders}->go($tag) : kill KILL => $self->{orders}->pid($tag);
        my $connection = $self->{open}{$tag};
        if ($held->{httpd}) {
            my $res = eval { $connection->response };
            return $self->saw($one, $event, told($res), $res);
        }
        wait_for(sub { -e "$self->{orders}{dir}/$tag.end" }, 30) or $self->wrong($one, "@$event: its backend does not end", 'surprises') if $name eq 'go';
        return $self->saw($one, $event, '');
    }
    if ($name eq 'overrun') {
        $self->value("UPDATE idempotency_records SET owned_at = owned_at - interval '1 day' WHERE idem_key = '$one->{key}' AND settled_at IS NULL");
    }
    elsif ($name eq 'resolve') {
        return $self->resolve($one);
    }
    return $self->saw($one, $event, '');
}

# The operator looks at the backend's table and says what he found.
sub resolve {
    my ($self, @all) = @_;
    my %row = $self->ends;
    my @pids;
    for my $one (@all) {
        my $row = $row{ $one->{key} };
        $self->saw($one, ['effects'], $row->{effects});
        push @pids, spawn(cmd => [ $self->{t}[0]{ctl}, 'resolve', $row->{operation_id}, '--reason', 'looked at the orders', $row->{effects}
            ? ('--succeeded', '--code', 201, '--header', 'Content-Type: application/json', '--body-file', $self->found) : ('--not-executed', '--owner-is-dead') ],
            env => $self->pg->env, dir => '/');
    }
    for my $n (0 .. $#all) {
        waitpid $pids[$n], 0;
        $self->wrong($all[$n], "resolve ended with $?", 'surprises') if $?;
        $self->saw($all[$n], ['resolve'], '');
    }
}

# What became of every key of this round.
sub ends {
    my ($self) = @_;
    return map { $_->{idem_key} => $_ } $self->rows('SELECT idem_key, operation_id, status, owner_generation, (SELECT count(*) FROM orders o WHERE o.operation = r.operation_id) AS effects'
        . " FROM idempotency_records r WHERE idem_key LIKE '$self->{name}-%'");
}

sub found {
    my ($self) = @_;
    my $file = $self->{t}[0]->root . '/found';
    return -e $file ? $file : spew($file, '{"found":true}', 0644);
}

# ---- many

# Nobody is in the middle of anything: the killed servers' statements have ended, and the backends that nobody holds.
sub quiet {
    my ($self, $all, @killed) = @_;
    my $held = grep { $_->{point} =~ /^(?:before|committing|after)$/ } map { values %{ $_->{states}[0]{at} } } grep { !$_->{over} } @$all;
    my $open = grep { $_->{point} =~ /^(?:before|committing)$/ } map { values %{ $_->{states}[0]{at} } } grep { !$_->{over} } @$all;
    my $roles = join ',', "'none'", map { "'web$_'" } @killed;
    wait_for(sub { $self->{orders}->busy <= $held }, 20) or die "backends do not end\n";
    wait_for(sub { $self->value("SELECT count(*) FILTER (WHERE usename IN ($roles)) = 0 AND count(*) FILTER (WHERE usename = 'shop') <= $open FROM pg_stat_activity WHERE backend_start < '$self->{before}'") eq 't' }, 20)
        or die "the database's sessions do not end\n";
}

sub kill_instance {
    my ($self, $n) = @_;
    my @children = $self->httpd($n)->children;
    $self->{before} = $self->value('SELECT clock_timestamp()');
    kill KILL => @children;
    wait_for(sub { !grep { kill 0 => $_ } @children }) or die "the children do not die\n";
    $self->{sum}{kills}++;
}

# The leases of those that are dead are over.
sub lapse {
    my ($self) = @_;
    my $alive = join ',', 0, map { $self->httpd($_)->children } 0, 1;
    $self->value("UPDATE idempotency_owners SET seen_at = seen_at - interval '1 hour' WHERE pid NOT IN ($alive)");
}

sub phase {
    my ($self, $all) = @_;
    my $what = rand();
    my ($kill) = $what < 0.45 ? int rand 2 : ();
    my (@asked, @race);
    for my $one (grep { !$_->{over} } @$all) {
        next if rand() < 0.15;
        my $event = $self->choose($one);
        if (defined $kill && rand() < 0.25 && !keys %{ $one->{states}[0]{at} } && @{ $one->{states} } == 1) {
            push @race, [ $one, [ race => "$one->{key}-race" . ++$one->{tags}, $kill ] ];
        }
        elsif ($event->[0] =~ /^(?:send|burst|other)$/) {
            push @asked, $self->begin($one, $event);
        }
        else {
            push @asked, [ $one, $event ];
        }
    }
    ref $_ eq 'HASH' ? $self->finish($_) : $self->act(@$_) for @asked;
    if (defined $kill) {
        my @racing = map { my ($one, $event) = @$_; $self->begin($one, $event) } @race;
        sleep(rand 0.08);
        $self->kill_instance($kill);
        for my $asked (@racing) {
            $self->saw($asked->{one}, $asked->{event}, $self->result($asked, 5));
        }
        my %raced = map { $_->[0]{key} => 1 } @race;
        $self->saw($_, [ kill => $kill ], '') for grep { !$raced{ $_->{key} } && !$_->{over} } @$all;
        $self->quiet($all, $kill);
    }
    elsif ($what < 0.75) {
        $self->lapse;
        $self->saw($_, ['lapse'], '') for grep { !$_->{over} } @$all;
    }
    elsif ($what < 0.85) {
        $self->httpd(int rand 2)->graceful;
        $self->{sum}{gracefuls}++;
    }
}

# Everything comes to its end; who does not know is told.
sub close_round {
    my ($self, $all) = @_;
    for my $one (@$all) {
        next if $one->{over};
        # who commits first, for whom others may wait
        while (my @held = sort keys %{ $one->{states}[0]{at} }) {
            my ($next) = grep { !waits($one->{states}[0], $_) } @held;
            $self->act($one, [ go => $next ]);
            last if $one->{over};
        }
    }
    $self->{before} = $self->value('SELECT clock_timestamp()');
    $self->quiet([]);
    $self->lapse;
    my $retry = sub {
        my @asked = map { $self->begin($_, [ send => "$_->{key}-end", 'end', 201, int rand 2 ]) } @_;
        $self->finish($_) for @asked;
    };
    my @left = grep { !$_->{over} } @$all;
    $self->saw($_, ['lapse'], '') for @left;
    $retry->(@left);
    my %row = $self->ends;
    for my $one (grep { !$_->{over} } @left) {
        my $row = $row{ $one->{key} } // {};
        my %may = map { $_->{rec} eq 'unknown' ? (unknown => 1) : (known => 1) } @{ $one->{states} };
        my $unknown = ($row->{status} // '') eq 'UNKNOWN';
        $self->{sum}{unknown}++ if $unknown;
        $self->wrong($one, 'its row is ' . ($row->{status} // 'not there'), 'rows UNKNOWN without cause') if !$may{ $unknown ? 'unknown' : 'known' };
    }
    my @unknown = grep { !$_->{over} && $_->{states}[0]{rec} eq 'unknown' } @left;
    $self->resolve(@unknown);
    $retry->(@unknown);
    %row = $self->ends;
    for my $one (@$all) {
        my $row = $row{ $one->{key} } or next;
        if ($row->{effects} > ($one->{mode} eq 'repeatable' ? $row->{owner_generation} : 1)) {
            $self->wrong($one, "$row->{effects} effects", 'duplicate effects');
        }
        next if $one->{over};
        $self->saw($one, ['effects'], $row->{effects});
        $self->wrong($one, "is $row->{status} in the end", 'surprises') if $row->{status} !~ /^(?:SUCCEEDED|FAILED_FINAL)$/;
    }
}

sub round {
    my ($self, $seed, $count) = @_;
    srand $seed;
    $self->{seed} = $seed;
    $self->{name} = 'soak-' . ++$self->{rounds};
    my @all = map { my $mode = $MODES[ $_ % @MODES ]; { mode => $mode, key => "$self->{name}-$_", states => [ start($mode) ], story => [], tags => 0 } } 1 .. $count;
    $self->phase(\@all) for 1 .. 5 + int rand 3;
    $self->close_round(\@all);
    $self->{sum}{schedules} += $count;
    $self->pg->do("DELETE FROM orders; DELETE FROM idempotency_outbox; DELETE FROM idempotency_events; DELETE FROM idempotency_records WHERE idem_key LIKE '$self->{name}-%'");
    unlink glob "$self->{orders}{dir}/*";
    $self->{open} = {};
    return !@{ $self->{wrong} };
}

1;
