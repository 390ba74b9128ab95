# C056: many at once under one key. One runs; the others are told so or get its reply; nobody sees an error of ours.
use strict;
use warnings;
use Idem::Test;

my $config = protected('/charges', 'charges.create') . protected({ by => 'proxy' }, '/proxy', 'proxy');
# Threads for all of them: a child keeps some free, and refuses, where its registry is silent for a moment (breaker.t).
my $t = Idem::Test->new(mpm => 'event', backends => [qw(cgi proxy)], config => $config,
    mpm_config => "ServerLimit 2\nStartServers 2\nThreadsPerChild 128\nThreadLimit 128\nMaxRequestWorkers 256\nMinSpareThreads 1\nMaxSpareThreads 256\n");
my $body = '{"amount":10}';

# All of them at once, spread over the clients given.
sub storm {
    my ($name, $clients, $times, $target, $stranger) = @_;
    subtest $name => sub {
        my $key = fresh_key();
        my @res;
        my @running;
        ran($t, 1, $name, sub {
            for my $n (0 .. $times - 1) {
                my $client = $clients->[ $n % @$clients ];
                push @running, $client->connect;
            }
            $clients->[ $_ % @$clients ]->send(POST => $target, key => $key, body => $body, on => $running[$_]) for 0 .. $times - 1;
            push @running, $clients->[0]->send(POST => $target, key => $key, body => '{"amount":666}') if $stranger;
            @res = map { $_->response } @running;
        });
        my $other = $stranger ? pop @res : undef;
        my %count;
        $count{ $_->status }++ for @res;
        note(join ', ', map { "$count{$_} times $_" } sort keys %count);
        is((grep { $_->status != 200 && $_->status != 409 && !($stranger && $_->status == 422) } @res), 0, 'nothing but the reply or in-progress');
        if ($stranger && $other->status == 200) {
            # The stranger was first: then it is the others that come with another request.
            is((grep { $_->status != 422 } @res), 0, 'the stranger won: all others are told so');
            return;
        }
        problem($other, 'key-reused') if $stranger;
        my ($first, @more) = grep { $_->status == 200 && !$_->replayed } @res;
        ok($first, 'one of them ran');
        is(@more, 0, 'and no other');
        is((grep { $_->status == 200 && $_->body ne $first->body } @res), 0, 'every reply is the one');
        is((grep { $_->status == 200 && $_->operation ne $first->operation } @res), 0, 'every operation is the one');
        problem((grep { $_->status == 409 } @res)[0], 'in-progress') if $count{409};
        ran($t, 0, 'afterwards', sub { is_replay($_->post($target, key => $key, body => $body), $first, 'afterwards') for @$clients });
        is($t->record_count("idem_key = '$key'"), 1, 'one record');
    };
}

my $c = $t->client;
$t->backend->behave(sleep => 0.5);
storm('a hundred equal and one other', [$c], 100, '/charges', 1);
storm('twenty, a second each', [$c], 20, '/charges?sleep=1', 0);
storm('through a proxy', [$c], 60, '/proxy', 1);
$t->backend->behave;
storm('a fast application', [$c], 60, '/charges', 0);

subtest 'many keys at once' => sub {
    my @res;
    ran($t, 60, 'sixty keys', sub { @res = $c->parallel(map { [ POST => '/charges', key => fresh_key(), body => $body ] } 1 .. 60) });
    is((grep { $_->status == 200 && !$_->replayed } @res), 60, 'all of them run');
};

# Another machine on the same store: it shares nothing with the first but the database (and, for counting, the application).
my $second = Idem::Test->new(mpm => 'prefork', pg => $t->pg, backends => [qw(cgi proxy)], config => sub {
    my ($s) = @_;
    (my $text = $config) =~ s/\@CGI\@/$t->backend->cgi/ge;
    return $text;
});
# One service under one name; the port is part of the authority, so neither is named by its own.
my @both = map { $_->client->with(authority => 'shop.example') } $t, $second;
$t->backend->behave(sleep => 0.5);
storm('two servers, event and prefork, on one database', \@both, 60, '/charges', 1);
$t->backend->behave;
storm('two servers, a fast application', \@both, 40, '/charges', 0);
storm('prefork alone', [ $both[1] ], 30, '/charges?sleep=1', 0);

# Sixty at once are more than the workers there are; the rest stands in the queue.
$_->httpd->allow_log(qr/AH00484|AH00161/) for $t, $second;
$second->finish(more => 1);
$t->finish;
