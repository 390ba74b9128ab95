package Idem::Load;

# Clients that send requests with fresh keys, one after the other, and the same again where they were refused, until
# they are told to stop; and what must be true of all of it afterwards.
#
#   my $load = Idem::Load->start($t, clients => [ … ], path => '/proxy', workers => 4);
#   ... whatever happens meanwhile ...
#   $load->stop;
#   $load->holds('name');   journal => 1 where what was accepted may still have to be settled from there

use strict;
use warnings;
use Idem::Test;
use Idem::Util;
use JSON::PP ();
use Time::HiRes qw(sleep time);

my $loads = 0;

sub start {
    my ($class, $t, %arg) = @_;
    my $self = bless { t => $t, workers => 4, path => '/proxy', clients => [ $t->client ], body => '{"amount":10}', %arg }, $class;
    $self->{folder} = own_folder('load');
    $self->{name} = sprintf 'load%d-%d', $$, ++$loads;
    for my $n (1 .. $self->{workers}) {
        my $pid = fork // die "fork: $!\n";
        if (!$pid) {
            $SIG{$_} = 'DEFAULT' for qw(INT TERM);
            eval { $self->work($n) };
            spew("$self->{folder}/died-$n", $@) if $@;
            POSIX::_exit(0);
        }
        push @{ $self->{pids} }, $pid;
    }
    at_end(sub { end_process($_, 'KILL', 5) for @{ $self->{pids} } });
    return $self;
}

sub work {
    my ($self, $n) = @_;
    open(my $out, '>', "$self->{folder}/results-$n") or die "results: $!\n";
    my @clients = @{ $self->{clients} };
    for (my $count = 0; !-e "$self->{folder}/stop"; $count++) {
        my $key = "$self->{name}-$n-$count";
        for my $try (0 .. 60) {
            my $client = $clients[ ($n + $count + $try) % @clients ];
            my $before = time;
            my $res = $client->post($self->{path}, key => $key, body => $self->{body});
            my $status = $res ? $res->status : 0;
            printf $out "%s\n", JSON::PP::encode_json([ $key, $status, time - $before, $status == 200 ? ($res->operation, sha256($res->body)) : ($res ? $res->body : 'no answer') ]);
            $out->flush;
            last if $status == 200 || -e "$self->{folder}/stop";
            sleep 0.02;
        }
    }
}

# Every answer so far: [key, status, seconds, operation and digest, or body].
sub results {
    my ($self) = @_;
    return map { JSON::PP::decode_json($_) } map { /\n\z/ ? split(/\n/, $_) : split(/\n/, s/[^\n]*\z//r) } map { slurp($_) } glob "$self->{folder}/results-*";
}

# How often a status (or one that this describes) was answered.
# Asked for again and again beside the load itself, hence without reading the whole.
sub count { my ($self, $status) = @_; my $count = 0; $count += () = slurp($_) =~ /^\["[^"]*",(?:$status),.*\n/mg for glob "$self->{folder}/results-*"; return $count }

# The keys whose requests were answered with the backend's own response so far.
sub accepted { my ($self) = @_; my %key = map { $_->[1] == 200 ? ($_->[0] => 1) : () } $self->results; return sort keys %key }

# Waits until so many more of them have come.
sub wait_for_more {
    my ($self, $status, $more, $seconds) = @_;
    my $before = $self->count($status);
    return wait_for(sub { $self->count($status) >= $before + $more }, $seconds // 20);
}

sub stop {
    my ($self) = @_;
    spew("$self->{folder}/stop", '');
    wait_for(sub { !grep { alive($_) } @{ $self->{pids} } }, 40) or die "the load does not end\n";
    die map { slurp($_) } glob "$self->{folder}/died-*" if glob "$self->{folder}/died-*";
}

# No key ran twice; who was told 200 is told the same again, with the same operation, whoever is asked; nobody was told
# anything but the result, in-progress, or that the store or the outcome is not known; within the time allowed.
sub holds {
    my ($self, $name, %arg) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return subtest "$name: effects and answers" => sub {
        my $t = $self->{t};
        my (%accepted, %asked, $longest, %status);
        for my $result ($self->results) {
            my ($key, $code, $seconds, @of) = @$result;
            $asked{$key} = 1;
            $status{$code}++;
            $longest = $seconds if !defined $longest || $seconds > $longest;
            next if $code != 200;
            $accepted{$key} //= \@of;
            is_deeply(\@of, $accepted{$key}, "$key: one answer") if "@of" ne "@{ $accepted{$key} }";
        }
        note("$name: " . join(', ', map { "$status{$_} times $_" } sort keys %status) . sprintf '; %d keys, longest answer %.2f s', scalar keys %asked, $longest);
        cmp_ok(scalar keys %accepted, '>', 0, 'requests were accepted');
        is(join(' ', grep { !/^(?:200|409|503)$/ } sort keys %status), '', 'no other answer') or diag(explain([ grep { $_->[1] !~ /^(?:200|409|503)$/ } $self->results ]));
        cmp_ok($longest, '<', $arg{within} // 8, 'every answer in time');
        my %ran;
        $ran{ $_->{key} =~ s/\A"|"\z//gr }++ for grep { defined $_->{key} } $t->backend->effects;
        is_deeply([ grep { ($ran{$_} // 0) > 1 } sort keys %asked ], [], 'no key ran twice');
        is_deeply([ grep { !$ran{$_} } sort keys %accepted ], [], 'whatever was accepted ran');
        my @lost;
        for my $key (sort keys %accepted) {
            my $client = $self->{clients}[ rand @{ $self->{clients} } ];
            my $res;
            # a settlement that the store could not take at that time is still in the journal for a moment
            wait_for(sub {
                $res = $client->post($self->{path}, key => $key, body => $self->{body});
                return $res->status == 200 || !$arg{journal};
            }, @lost ? 0 : 15);
            next if $res->status == 200 && $res->operation eq $accepted{$key}[0] && sha256($res->body) eq $accepted{$key}[1];
            push @lost, "$key: " . $res->status . ' ' . $res->body;
        }
        is_deeply(\@lost, [], 'whatever was accepted is replayed');
    };
}

1;
